"""Configuration files and what they describe: systems, hardware, environments."""
