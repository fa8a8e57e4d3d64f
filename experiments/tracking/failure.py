from experiments.run_folder.record import write_failure as write_failure
