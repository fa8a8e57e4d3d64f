from experiments.run_folder.record import environment as environment
from experiments.run_folder.record import installed as installed
from experiments.run_folder.record import processor as processor
