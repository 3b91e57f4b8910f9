"""llama.cpp's own HTTP server. Run by the Python that has xllamacpp; nothing of Loopline may be imported here.

It serves until its standard input closes, so that it cannot outlive whoever started it, however that one died.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from pathlib import Path

# llama.cpp would keep up to 8 GiB of old prompts; these slots hold 2,048 tokens each.
_PROMPT_CACHE_MIB = 256
# So small a model rambles at llama.cpp's own 0.8; measured on "Say hello.", which then always comes to an end.
_TEMPERATURE, _TOP_P = 0.1, 0.9
_ERRORS = 1  # llama.cpp's level; the next one writes what the model said where that is not a call


def arguments() -> argparse.Namespace:
    """The command line: what `Embedded` passes."""
    parser = argparse.ArgumentParser()
    for name in ("model", "template", "alias"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("port", "context-tokens", "slots", "threads", "batch-threads"):
        parser.add_argument(f"--{name}", required=True, type=int)
    return parser.parse_args()


def exit_with_parent() -> None:
    """Block until standard input ends, then leave at once: a turn that still runs has no reader any more."""
    while os.read(0, 4096):  # not sys.stdin: its lock would be held when the interpreter leaves for another reason
        pass
    os._exit(0)


def serve(given: argparse.Namespace) -> None:
    """Load the model and answer on 127.0.0.1 for ever."""
    import xllamacpp  # type: ignore[import-not-found]  # of the other environment

    params = xllamacpp.CommonParams()
    params.model.path = given.model
    params.model_alias = {given.alias}
    params.hostnames = ["127.0.0.1"]
    params.port = given.port
    params.n_parallel = given.slots
    params.n_ctx = given.context_tokens * given.slots  # llama.cpp divides it among the slots
    params.cpuparams.n_threads = given.threads
    params.cpuparams_batch.n_threads = given.batch_threads
    params.n_gpu_layers = 0
    params.use_jinja = True
    params.chat_template = Path(given.template).read_text(encoding="utf-8")
    params.sampling.temp, params.sampling.top_p = _TEMPERATURE, _TOP_P  # unless a request says otherwise
    params.endpoint_metrics = True
    params.cache_ram_mib = _PROMPT_CACHE_MIB
    params.verbosity = _ERRORS
    params.cors_origins = f"http://127.0.0.1:{given.port}"  # by default any page of any browser here may ask
    try:
        server = xllamacpp.Server(params)  # stops when it is collected, so the name must live
    except RuntimeError as error:  # llama.cpp has written why on the lines before
        sys.exit(f"no server: {error}")
    print("listening on", server.listening_address, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    options = arguments()
    threading.Thread(target=exit_with_parent, daemon=True).start()
    serve(options)
