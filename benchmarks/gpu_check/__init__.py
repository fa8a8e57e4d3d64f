"""Checks what works on this machine's GPU: runs parts one after the other and writes a page of their outcomes."""
