"""Check for ./run, ./test and make_venv.py whether an installation is whole, and say why pip failed."""
