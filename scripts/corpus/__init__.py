"""The corpus: where its text comes from, how it becomes tokens, and how a finished token file is checked."""
