"""What a configuration alone can be told it does wrong, before anything is loaded or drawn."""
