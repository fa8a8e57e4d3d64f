"""The arm of plain ``transformers``: ``generate`` on prompts, each repeated for its group."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch

from benchmarks.peers.conversation import Conversation, processors, read_work, time_call

# imported by name, because the peer's environment has its own version
transformers: Any = import_module("transformers")


def main() -> None:
    conversation, work = Conversation(), read_work()
    tokenizer = transformers.AutoTokenizer.from_pretrained(work["policy"], padding_side="left")
    model = (
        transformers.AutoModelForCausalLM.from_pretrained(work["policy"], dtype=torch.float32).eval().to(work["device"])
    )
    prompts = [prompt for prompt in work["prompts"] for _ in range(work["group_size"])]
    inputs = tokenizer(prompts, add_special_tokens=False, padding=True, return_tensors="pt").to(work["device"])
    width = inputs["input_ids"].shape[1]
    given = processors(work, prompt_tokens=width, end=tokenizer.eos_token_id)
    settings = transformers.GenerationConfig(
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        max_new_tokens=work["max_tokens"],
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    bf16 = work["compute_dtype"] == "bfloat16"
    written: list[Any] = []

    def generate() -> None:
        with torch.no_grad(), torch.autocast(work["device"], dtype=torch.bfloat16, enabled=bf16):
            rows = model.generate(
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                generation_config=settings,
                logits_processor=transformers.LogitsProcessorList(given),
            )
        written[:] = [rows]

    conversation.ready(torch=torch.__version__, transformers=transformers.__version__)
    while True:
        conversation.until_step({})
        seconds = time_call(generate)
        count = int((written[0][:, width:] != tokenizer.pad_token_id).sum())
        prompt_count = int(inputs["attention_mask"].sum())
        conversation.answer({"generation": seconds}, {"prompt": prompt_count, "completion": count})


if __name__ == "__main__":
    main()
