"""Everything that runs: the entry, the stages, the run folder, MLflow. See ``conf/`` for what there is to run."""

import sys

if sys.flags.safe_path and not sys.flags.isolated:
    # the command keeps the working folder from going before our packages (see cli.py); code of one's own lies there
    sys.path.append("")
