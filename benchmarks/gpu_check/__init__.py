"""What works on this machine's GPU: parts that are run one after the other, and the page that says what came out."""
