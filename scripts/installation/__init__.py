"""Install packages for ./run, ./test and make_venv.py, check that they are whole, and say why they could not be had."""
