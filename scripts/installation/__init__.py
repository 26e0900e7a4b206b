"""What ./run, ./test and make_venv.py ask about an installation: is it whole, and why did pip fail."""
