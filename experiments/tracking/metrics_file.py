from experiments.run_folder.reader import METRICS_FILE as METRICS_FILE
from experiments.run_folder.reader import Metric as Metric
from experiments.run_folder.reader import complete_lines as complete_lines
from experiments.run_folder.reader import last_values as last_values
from experiments.run_folder.reader import parse_line as parse_line
from experiments.run_folder.reader import read_metrics as read_metrics
