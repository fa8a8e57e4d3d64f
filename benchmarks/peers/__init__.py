"""What the peers run, in an environment of their own: nothing of our packages but the conversation is imported here."""
