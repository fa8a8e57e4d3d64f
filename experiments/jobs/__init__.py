"""Jobs: runs that belong together, each a process of its own. A sweep's are values, a study's are arms × seeds."""
