"""Plans, resumes, reuses, trains and evaluates the stages of an experiment."""
