"""The fake server as a command like vLLM's:  python -m tests.contract.served serve FOLDER --port PORT …"""

from __future__ import annotations

import argparse
from http.server import ThreadingHTTPServer

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.contract.fake_vllm import FakeVLLM, FakeWorker, TokenIn
from tests.contract.recording import Served, handler_of


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("model")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--worker-extension-cls", choices=["weight_sync.WeightSync"], required=True)
    options, _ = parser.parse_known_args()  # vLLM's other options have no effect here
    model, tokenizer = (kind.from_pretrained(options.model) for kind in (AutoModelForCausalLM, AutoTokenizer))
    with torch.no_grad():  # differ from the trainer's weights, which must be sent first
        model.get_input_embeddings().weight.zero_()
    policy = TokenIn(model=model, tokenizer=tokenizer, compute_dtype=torch.float32, chat_template=False)

    class Handler(handler_of(Served(FakeVLLM(FakeWorker(policy, logprobs_mode="raw_logprobs"))))):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/health" else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

    ThreadingHTTPServer(("127.0.0.1", options.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
