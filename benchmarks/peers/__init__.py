"""The arms of the peers, which run in their own environment. They import only ``conversation`` of our packages."""
