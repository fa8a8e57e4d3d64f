"""Files, processes, devices, secrets and output of the machine that a run is on. Imports nothing of experiments."""
