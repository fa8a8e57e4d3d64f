"""CLIPO's reward in TRL's GRPOTrainer, on arithmetic stories."""

from datasets import Dataset
from hydra import compose
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from contrastive_reasoning.rewards import RewardInTRL
from experiments.assemble import build
from experiments.schema import composing


def main(output_dir: str = "outputs/trl", max_steps: int = 20, resume: bool = False) -> GRPOTrainer:
    with composing():
        config = compose("config", ["experiment=clipo_laptop", "budget.clipo.warmup_steps=1"])
    policy, reward, task = (build(config, key) for key in ("policy", "reward", "task"))
    function = RewardInTRL(reward, policy=policy, problems=task.problems("train"), group_size=8)
    trainer = GRPOTrainer(
        model=policy.model,
        processing_class=policy.tokenizer,
        reward_funcs=function,
        train_dataset=Dataset.from_list(function.rows()),
        callbacks=[function.checkpoints()],
        args=GRPOConfig(
            output_dir=output_dir,
            num_generations=8,
            per_device_train_batch_size=64,
            max_completion_length=config.budget.grpo.max_completion_tokens,
            learning_rate=config.budget.grpo.learning_rate,
            max_steps=max_steps,
            save_steps=max_steps,
            logging_steps=1,
            report_to="none",
            bf16=False,
        ),
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


if __name__ == "__main__":
    main()
