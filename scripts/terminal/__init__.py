"""What a call of the workflow says on the terminal: a line for every cell, and at the end what came of them."""
