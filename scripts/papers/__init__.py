"""Papers: one module for each paper whose tables and figures are reproduced, beside the helpers they share."""
