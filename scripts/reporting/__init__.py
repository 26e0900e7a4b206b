"""What tables and figures of every paper are made with."""
