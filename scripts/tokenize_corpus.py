"""Tokenize one split of a corpus with GPT-2's tokenizer: a .bin of little-endian uint16 and a .json that describes it.

    python scripts/tokenize_corpus.py --corpus bundled --split train --output results/tokens/example/train.bin

The exit status is 0, 2 for a user's mistake, 1 for other failures, and 128 and the number of a signal that ended it.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from contracts.project_files import project_folder
from corpus.sources import parse_corpus_argument, resolve_corpus
from corpus.stopping import Stopped, stoppable
from corpus.tokenizing import WorkerDied, tokenize_and_tell


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--corpus", required=True, help='bundled, wikitext-103, or a mapping in JSON such as \'{"path": "folder"}\''
    )
    parser.add_argument("--split", default="train", help="train, validation or test (default: train)")
    parser.add_argument("--output", type=Path, required=True, help="the token file to write, ending in .bin")
    parser.add_argument(
        "--processes", type=int, default=len(os.sched_getaffinity(0)), help="worker processes (default: the cores)"
    )
    args = parser.parse_args()
    try:
        with stoppable():
            corpus = resolve_corpus(parse_corpus_argument(args.corpus), project_folder())
            print(tokenize_and_tell(corpus, args.split, args.output, args.processes), file=sys.stderr)
    except ValueError as error:
        return failed(error, 2)
    except (WorkerDied, OSError) as error:
        return failed(error, 1)
    except Stopped as stopped:
        return failed(stopped, stopped.exit_code)
    return 0


def failed(reason: object, exit_code: int) -> int:
    """Say why, and return the exit status."""
    print(f"tokenize_corpus.py: {reason}", file=sys.stderr)
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
