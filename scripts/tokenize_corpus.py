"""Tokenize one split of a corpus with GPT-2's tokenizer: a .bin of little-endian uint16 and a .json that describes it.

Example: python scripts/tokenize_corpus.py --corpus bundled --split train --output results/tokens/example/train.bin
"""

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from contracts.project_files import project_folder
from corpus.sources import parse_corpus_argument, resolve_corpus
from corpus.tokenizing import WorkerDied, tokenize_corpus

ROOT = project_folder()
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(KeyboardInterrupt):
    """A signal asked this program to stop; the argument is its number."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code: 0, 2 for a user's mistake, 1 for other failures, 128 + signal."""
    args = _parser().parse_args(arguments)
    try:
        with _stoppable():
            started_s = time.monotonic()
            corpus = resolve_corpus(parse_corpus_argument(args.corpus), ROOT)
            info = tokenize_corpus(corpus, args.split, args.output, args.processes, show_progress=True)
            elapsed_s = time.monotonic() - started_s
    except ValueError as error:
        return _failed(error, 2)
    except (WorkerDied, OSError) as error:
        return _failed(error, 1)
    except Stopped as stopped:
        return _failed(f"stopped by {signal.Signals(stopped.args[0]).name}; nothing was kept", 128 + stopped.args[0])
    print(
        f"{corpus.name} {info.split}: {info.text_bytes:,} bytes, {info.num_tokens:,} tokens in {elapsed_s:.1f} s "
        f"-> {args.output}",
        file=sys.stderr,
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument(
        "--corpus", required=True, help='bundled, wikitext-103, or a mapping in JSON such as \'{"path": "folder"}\''
    )
    parser.add_argument("--split", default="train", help="train, validation or test")
    parser.add_argument("--output", type=Path, required=True, help="the token file to write, ending in .bin")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), help="worker processes")
    return parser


def _failed(reason: object, exit_code: int) -> int:
    print(f"tokenize_corpus.py: {reason}", file=sys.stderr)
    return exit_code


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """Turn the first signal to stop into an exception, so that everything is cleaned up; ignore further ones."""

    def stop(number: int, _: object) -> None:
        for each in _STOP_SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped(number)

    # A signal that is ignored from the start (nohup, a shell's background job) stays ignored.
    previous = {number: signal.getsignal(number) for number in _STOP_SIGNALS}
    for number, handler in previous.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
