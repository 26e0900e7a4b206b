"""What the Snakefile and its rules call: input functions, checks, messages and hooks of one call of Snakemake."""
