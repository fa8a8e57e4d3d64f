"""The arm of TRL: runs ``GRPOTrainer`` in the usual way and waits for a request before every optimizer step."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

import torch

from benchmarks.peers.conversation import Conversation, now, peak_memory, processors, read_work, time_call

# imported by name, because the environment that checks our code does not have them all
datasets: Any = import_module("datasets")
transformers: Any = import_module("transformers")
trl: Any = import_module("trl")


class TimedTrainer(trl.GRPOTrainer):
    """Times its generation, and its whole preparation from prompts to rollouts with advantages."""

    generating = preparing = 0.0

    def _generate(self, prompts: list[Any]) -> Any:
        start = now()
        found = super()._generate(prompts)
        self.generating = now() - start
        return found

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        start = now()
        found = super()._generate_and_score_completions(inputs)
        self.preparing = now() - start
        return found

    def rollouts(self, name: str) -> Any:
        """Returns a tensor with all rows of the last rollout batch."""
        return torch.cat([part[name] for part in self._buffered_inputs])

    def score(self) -> None:
        """Computes the log-probs of the last rollouts, as the trainer does for old policies and references."""
        ids = torch.cat([self.rollouts("prompt_ids"), self.rollouts("completion_ids")], dim=1)
        mask = torch.cat([self.rollouts("prompt_mask"), self.rollouts("completion_mask")], dim=1)
        width, rows = self.rollouts("completion_ids").shape[1], self.args.per_device_train_batch_size
        with torch.no_grad():
            self._get_per_token_logps_and_entropies(self.model, ids, mask, width, rows)


class AtEachStep(transformers.TrainerCallback):
    """Waits for a request before each step and answers with the figures of the step."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.trainer: Any = None
        self.start = 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.conversation.until_step({"scoring": lambda: {"scoring": time_call(self.trainer.score)}})
        self.start = now()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        whole, trainer = now() - self.start, self.trainer
        figures = {
            "generation": trainer.generating,
            "update": whole - trainer.preparing,
            "whole_step": whole,
            "peak_memory": peak_memory(),
        }
        tokens = {name: int(trainer.rollouts(f"{name}_mask").sum()) for name in ("prompt", "completion")}
        self.conversation.answer(figures, tokens)


def every_other(completions: list[Any], **_: Any) -> list[float]:
    """Rewards every other completion with 1. So no advantage is zero, and every row is trained on."""
    return [float(row % 2) for row in range(len(completions))]


def settings(work: dict[str, Any]) -> Any:
    """Returns TRL's defaults, except for one optimizer step per rollout batch and what is equal in all arms."""
    rows, micro_rows = len(work["prompts"]) * work["group_size"], work["microbatch_rows"]
    return trl.GRPOConfig(
        output_dir=work["scratch"],
        use_cpu=work["device"] == "cpu",
        bf16=work["compute_dtype"] == "bfloat16",
        per_device_train_batch_size=micro_rows,
        gradient_accumulation_steps=rows // micro_rows,
        num_generations=work["group_size"],
        max_completion_length=work["max_tokens"],
        temperature=1.0,
        beta=0.0,
        learning_rate=work["learning_rate"],
        lr_scheduler_type="constant",
        gradient_checkpointing=False,
        shuffle_dataset=False,
        max_steps=1_000_000,
        logging_steps=1_000_000,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


def main() -> None:
    conversation, work = Conversation(), read_work()
    tokenizer = transformers.AutoTokenizer.from_pretrained(work["policy"], padding_side="left")
    model = transformers.AutoModelForCausalLM.from_pretrained(work["policy"], dtype=torch.float32)
    steps = AtEachStep(conversation)
    steps.trainer = TimedTrainer(
        model=model,
        reward_funcs=every_other,
        args=settings(work),
        train_dataset=datasets.Dataset.from_dict({"prompt": work["prompts"]}),
        processing_class=tokenizer,
        callbacks=[steps],
    )
    width = max(len(ids) for ids in tokenizer(work["prompts"])["input_ids"])
    given = processors(work, prompt_tokens=width, end=tokenizer.eos_token_id)
    model.generate = partial(model.generate, logits_processor=transformers.LogitsProcessorList(given))
    versions = {library.__name__: library.__version__ for library in (torch, transformers, trl)}
    conversation.ready(**versions)
    steps.trainer.train()


if __name__ == "__main__":
    main()
