"""Groups tracked runs into arms, and shows arms as tables, curves and gains."""
