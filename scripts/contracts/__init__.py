"""What all rooms agree on: cells, the adaptor contract, outcomes; and the few helpers that everything stands on."""
