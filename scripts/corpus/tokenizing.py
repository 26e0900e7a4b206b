"""Turn a corpus into one file of GPT-2 tokens, on all cores, in bounded memory.

The parent reads and cuts the text, worker processes tokenize chunks, and the parent writes the tokens in order. A
worker is a fresh Python process that reads text from its standard input and writes tokens to its standard output. It
holds no end of any other pipe, so that it ends by itself when the parent is gone, however that came about.
"""

import collections
import concurrent.futures
import contextlib
import datetime
import errno
import hashlib
import json
import os
import queue
import re
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from contracts.atomic import replace_when_complete, write_json
from corpus.cutting import cut_text
from corpus.gpt2 import check_tiktoken, read_vocabulary
from corpus.places import place_of_byte
from corpus.reading import read_text, text_size_bytes
from corpus.sources import Corpus, check_split
from corpus.verify import BYTES_PER_TOKEN, DTYPE, TokensInfo

# Speed is the same from 100,000 to a million. With larger chunks glibc's heap fills with holes of their size, and a
# worker grows for minutes, to several times what it needs.
CHUNK_CHARS = 200_000
CHUNKS_IN_FLIGHT_PER_PROCESS = 2  # one being tokenized and one waiting, so that no worker waits for the parent
_LONG_RUN_CHARS = 100_000  # tiktoken gives up at about a million
_SCRIPTS_FOLDER = Path(__file__).resolve().parents[1]
_WORKER_CODE = "from corpus.tokenizing import run_worker; run_worker()"
_HEADER = struct.Struct("<cQ")  # kind, number of bytes that follow
_TEXT, _TOKENS, _FAILURE = b"T", b"N", b"F"
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class WorkerDied(RuntimeError):
    """A worker process ended while its work was still wanted."""


class CannotTokenize(ValueError):
    """tiktoken refuses a chunk; `offset_bytes` says where in the chunk the trouble probably begins."""

    def __init__(self, message: str, offset_bytes: int) -> None:
        super().__init__(message)
        self.offset_bytes = offset_bytes


def tokenize_and_tell(corpus: Corpus, split: str, output: Path, num_processes: int) -> str:
    """Tokenize as `tokenize_corpus` does, with a progress bar, and return what a person is told of it."""
    started_s = time.monotonic()
    info = tokenize_corpus(corpus, split, output, num_processes, show_progress=True)
    size = f"{info.text_bytes:,} bytes, {info.num_tokens:,} tokens"
    return f"{corpus.name} {info.split}: {size} in {time.monotonic() - started_s:.1f} s -> {output}"


def tokenize_corpus(
    corpus: Corpus,
    split: str,
    output: Path,
    num_processes: int,
    chunk_chars: int = CHUNK_CHARS,
    show_progress: bool = False,
) -> TokensInfo:
    """Tokenize one split into `output` (`<name>.bin`) and describe it in `<name>.json` beside it.

    The .bin is the split's tokens as little-endian uint16 and nothing else. Both files appear complete or not at all,
    the .json last: where it exists, the tokens are finished. Neither the tokens nor their hash depend on
    `num_processes` or `chunk_chars`. `show_progress` draws a bar on stderr if that is a terminal.

    Raises ValueError (see `read_text`; also for an empty split), WorkerDied, and OSError where `output` cannot be
    written.
    """
    output = Path(output)
    if output.suffix != ".bin":
        raise ValueError(f"the output is {output}: its name must end in .bin (the .json goes beside it)")
    check_split(corpus, split)
    json_path = output.with_suffix(".json")
    text_hash, tokens_hash = hashlib.sha256(), hashlib.sha256()
    text_bytes = tokens_bytes = 0
    total_bytes = text_size_bytes(corpus, split)
    with _clear_disk_errors(output), replace_when_complete(output, "wb") as file:
        chunks = (chunk.encode() for chunk in cut_text(read_text(corpus, split), chunk_chars))
        with (
            _progress_bar(f"{corpus.name} {split}", total_bytes, show_progress) as bar,
            TokenizerPool(num_processes) as pool,
            contextlib.closing(pool.tokenize(chunks)) as results,
        ):
            try:
                for chunk, tokens in results:
                    text_hash.update(chunk)
                    text_bytes += len(chunk)
                    tokens_hash.update(tokens)
                    tokens_bytes += len(tokens)
                    file.write(tokens)
                    bar.update(len(chunk))
            except CannotTokenize as error:
                place = place_of_byte(corpus, split, text_bytes + error.offset_bytes)
                raise ValueError(f"{place}: {error}") from error
        if not text_bytes:
            raise ValueError(f"the corpus {corpus.name!r}, split {split!r}, is empty: give one with text")
        # From here to the end the two files must not disagree under a .json that says "finished".
        json_path.unlink(missing_ok=True)
    info = TokensInfo(
        **corpus.identity,
        split=split,
        text_sha256=text_hash.hexdigest(),
        text_bytes=text_bytes,
        num_tokens=tokens_bytes // BYTES_PER_TOKEN,
        tokens_sha256=tokens_hash.hexdigest(),
        dtype=DTYPE,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )
    with _clear_disk_errors(json_path):
        write_json(json_path, vars(info))
    return info


class TokenizerPool:
    """Up to `num_processes` worker processes that tokenize chunks of text. A context manager; use it in one thread.

    Workers start as chunks arrive, so that a small text starts few. Leaving the context ends them all.
    """

    def __init__(self, num_processes: int) -> None:
        """Raise ValueError where `num_processes` is below 1, or tiktoken or the vocabulary is missing or wrong."""
        if num_processes < 1:
            raise ValueError(f"the number of processes is {num_processes}: it must be at least 1")
        check_tiktoken()
        read_vocabulary()  # here, so that a wrong vocabulary is one clear message and not one per worker
        self._num_processes = num_processes
        self._workers: list[subprocess.Popen[bytes]] = []
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        # Each thread only waits for a worker: writing a chunk and reading tokens from one thread would deadlock as
        # soon as both pipes of a worker were full.
        self._threads = concurrent.futures.ThreadPoolExecutor(num_processes, thread_name_prefix="tokenizer")

    def __enter__(self) -> "TokenizerPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def worker_pids(self) -> list[int]:
        """The process ids of the workers started so far."""
        return [worker.pid for worker in self._workers]

    def tokenize(self, chunks: Iterable[bytes]) -> Generator[tuple[bytes, bytes], None, None]:
        """Yield (chunk, its tokens as little-endian uint16) in the order of `chunks`, which are UTF-8.

        At most two chunks per process are held, however fast `chunks` come. Raises WorkerDied, and CannotTokenize
        where tiktoken refuses a chunk.
        """
        in_flight: collections.deque[tuple[bytes, concurrent.futures.Future[bytes]]] = collections.deque()
        for chunk in chunks:
            if len(in_flight) >= CHUNKS_IN_FLIGHT_PER_PROCESS * self._num_processes:
                oldest, tokens = in_flight.popleft()
                yield oldest, tokens.result()
            if len(self._workers) < self._num_processes:
                self._workers.append(_start_worker())
                self._idle.put(self._workers[-1])
            in_flight.append((chunk, self._threads.submit(self._ask, chunk)))
        while in_flight:
            oldest, tokens = in_flight.popleft()
            yield oldest, tokens.result()

    def close(self) -> None:
        """End all workers and wait until they are gone."""
        for worker in self._workers:
            worker.kill()  # they hold nothing that needs an orderly end, and the pipes' ends free the threads
        for worker in self._workers:
            worker.wait()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in self._workers:
            for pipe in filter(None, (worker.stdin, worker.stdout)):
                with contextlib.suppress(OSError):  # flushing what a dead worker did not read
                    pipe.close()

    def _ask(self, chunk: bytes) -> bytes:
        worker = self._idle.get()
        assert worker.stdin and worker.stdout, "workers are started with pipes"
        try:
            _send(worker.stdin, _TEXT, chunk)
            kind, answer = _receive(worker.stdout)
        except (OSError, EOFError) as error:
            raise WorkerDied(_how_it_died(worker)) from error
        finally:
            self._idle.put(worker)
        if kind == _FAILURE:
            raise CannotTokenize(**json.loads(answer))
        return answer


def run_worker() -> None:
    """Tokenize chunks from standard input until it ends. The main function of a worker process."""
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a stray print must not end up among the tokens
    _die_with_parent()
    from corpus.gpt2 import load_encoding

    encoding = load_encoding()
    with contextlib.suppress(EOFError, BrokenPipeError):  # the parent is gone, and nobody is left to tell
        while True:
            _, chunk = _receive(requests)
            _send(answers, *_tokens_of(encoding, chunk.decode()))
    os._exit(0)  # without flushing into a pipe that nobody reads


def _tokens_of(encoding: Any, text: str) -> tuple[bytes, bytes]:
    try:
        # encode_to_numpy with nothing disallowed is encode_ordinary (special tokens are text) without a list of ints.
        return _TOKENS, encoding.encode_to_numpy(text, disallowed_special=()).astype("<u2").tobytes()
    # tiktoken's errors come as a BaseException of its own, for example for a million white-space characters on end.
    except BaseException as error:
        start, end = _longest_run(text)
        message = (
            f"tiktoken cannot tokenize what begins there, {end - start:,} characters of white space on end "
            f"({type(error).__name__}: {error}): break up runs of a million characters of one kind"
        )
        if end - start < _LONG_RUN_CHARS:
            start = 0
            message = f"tiktoken cannot tokenize the {len(text):,} characters from there on: {error}"
        failure = {"message": message, "offset_bytes": len(text[:start].encode())}
        return _FAILURE, json.dumps(failure).encode()


def _longest_run(text: str) -> tuple[int, int]:
    """Return where the longest run of white space begins and ends."""
    return max(
        (match.span() for match in re.finditer(r"\s+", text)), key=lambda span: span[1] - span[0], default=(0, 0)
    )


def _die_with_parent() -> None:
    """Ask the kernel to end this process with its parent, even in the middle of a long chunk (Linux only)."""
    if sys.platform == "linux":
        import ctypes

        set_parent_death_signal = 1  # PR_SET_PDEATHSIG
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


def _start_worker() -> "subprocess.Popen[bytes]":
    search_path = os.pathsep.join(filter(None, (str(_SCRIPTS_FOLDER), os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-c", _WORKER_CODE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": search_path},
        # Ctrl-C is for the parent, which ends the workers: in its process group each would print a traceback.
        process_group=0,
    )


def _send(pipe: IO[bytes], kind: bytes, data: bytes) -> None:
    pipe.write(_HEADER.pack(kind, len(data)))
    pipe.write(data)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> tuple[bytes, bytes]:
    """Return (kind, data) of the next message; raise EOFError where the other side is gone."""
    header = pipe.read(_HEADER.size)
    if len(header) < _HEADER.size:
        raise EOFError
    kind, num_bytes = _HEADER.unpack(header)
    data = pipe.read(num_bytes)
    if len(data) < num_bytes:
        raise EOFError
    return kind, data


def _how_it_died(worker: "subprocess.Popen[bytes]") -> str:
    try:
        code = worker.wait(timeout=10)
    except subprocess.TimeoutExpired:
        return f"the tokenizing process {worker.pid} closed its pipe: run again"
    if code == -signal.SIGKILL:
        return (
            f"the tokenizing process {worker.pid} was killed (SIGKILL), most often because memory ran out: "
            "run again, with fewer processes if so"
        )
    if code < 0:
        return f"the tokenizing process {worker.pid} was ended by signal {-code}: run again"
    return f"the tokenizing process {worker.pid} ended with exit code {code}: its own message is above"


@contextlib.contextmanager
def _clear_disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _DISK_FULL:
            reason = f"{os.strerror(error.errno)}; nothing was kept: free some space, or write elsewhere"
            raise OSError(error.errno, reason, str(path)) from error
        raise


def _progress_bar(label: str, total_bytes: int | None, show: bool) -> Any:
    from tqdm import tqdm

    # None, for tqdm: only where stderr is a terminal. A log has no use for a bar.
    return tqdm(total=total_bytes, desc=label, unit="B", unit_scale=True, disable=None if show else True)
