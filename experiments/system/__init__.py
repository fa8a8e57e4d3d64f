"""Files, processes, devices, secrets and terminal output of the local machine. Imports nothing else of experiments."""
