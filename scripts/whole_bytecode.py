"""Imported first by the programs that people call by hand: an import of it removes the project's damaged bytecode."""

from pathlib import Path

from installation.bytecode import remove_damaged

remove_damaged([Path(__file__).resolve().parent])
