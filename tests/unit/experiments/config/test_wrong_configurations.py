"""Wrong configurations: a message of one line names the key, and mostly what to choose, before the first stage."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.util import find_spec

import pytest
from omegaconf import DictConfig

from experiments.assemble import AssemblyError
from experiments.config.override_checks import override_errors
from experiments.stages.building import check_arguments, check_parts
from experiments.stages.train import device_of
from tests.config_kit import composed

CRITIC, CLIPO, GRPO = (f"experiment={name}" for name in ("llama_critic_level", "clipo_laptop", "grpo_laptop"))
OUTCOMES, ONLINE, RELEASED = (f"experiment=llama_critic_{name}" for name in ("outcomes", "online", "released"))
REAL = "experiment=llama_critic"
CALIBRATED = "reward=critic_calibrated reward@reward.source"
LAUNCHER, SWEEPER = r"hydra/launcher=basic\|joblib\|.*submitit_slurm", "hydra/sweeper="


def overrides(line: str) -> list[str]:
    return line.split() if line.startswith("experiment=") else ["experiment=llama_baseline", *line.split()]


COMMAND_LINES = [
    # Names that do not exist, with the nearest one and its siblings.
    ("experiment=llama_critc", r"experiment=llama_critc: .*'llama_critic'\?"),
    ("objective=grop", r"objective=grop: .*'grpo' of cispo, dapo, dr_grpo, gmpo, grpo, grpo_full_kl, gspo\?"),
    ("sed=1", r"sed: .*'seed'\?"),
    ("objektive=grpo", r"objektive: .*'objective'\?"),
    (f"{CRITIC} weight=1", r"weight: .*'reward\.weight'\?"),
    (f"{CRITIC} reward.wieght=0.1", r"reward\.wieght: .*'reward\.weight' of batch_size, .*, weight\?"),
    (f"{CRITIC} {CALIBRATED}=orcle", r"reward=orcle: .*'oracle'\?"),
    ("stages=[warm_start,gpro]", r"stages: .*'gpro'.*'grpo'\?"),
    ("policy.pretrained=embedded:qwen_cuontdown", r"policy\.pretrained=embedded:qwen_cuontdown: .*:qwen_countdown'\?"),
    ("hydra/launcher=jobib", r".*hydra/launcher=jobib.*'joblib'\?"),
    ("sweep=tau hydra.job.nme=x", r"hydra\.job\.nme: .*'hydra\.job\.name'\?"),
    ("seed=1,2 objective=grpo,dpao", r"objective=dpao: .*'dapo'"),
    ("hydra/job_logging=nonee", ".*hydra/job_logging=nonee, which does not exist"),
    ("hydra.launcher.n_jobs=2", rf"hydra\.launcher\.n_jobs: .*{LAUNCHER}"),
    ("hydra.sweeper.n_trials=2", rf"hydra\.sweeper\.n_trials: .*{SWEEPER}"),
    ("experiment=llama_critic logger=[wandb,tenorboard]", r"logger=tenorboard: .*'tensorboard'"),
    # Overrides of a form that is not taken.
    ("reward=[verifier,clipo]", r"reward=\[verifier,clipo\]: .*one reward"),
    (f"{CRITIC} +reward.extra=1", r"\+reward\.extra=1: .*write key=value"),
    (f"{CRITIC} ~reward.weight", r"~reward\.weight: .*write key=null"),
    ("seed", r"'seed' .*write key=value \(Hydra: missing EQUAL"),
    (r"rollout.sampling.stop=['\n']", r"rollout\.sampling\.stop: .*\\n as two characters"),
    ("hydra.sweep.dir='~/x'", r"hydra\.sweep\.dir="),
    ("hydra.run.dir='~/x'", r"hydra\.run\.dir="),
    ("hydra.run.dir=${oc.env:MY_TOKEN}", r"hydra\.run\.dir holds the environment's MY_TOKEN: "),
    # Values of a wrong type or out of bounds.
    ("seed=abc", "seed must be a whole number, got the text 'abc'"),
    ("seed=1.5", r"seed must be a whole number, got 1\.5"),
    ("seed=null", "seed cannot be null"),
    *((f"seed={seed}", f"seed={seed}: ") for seed in (-1, 2**63, 10**23)),
    ("budget.grpo.steps=-1", r"budget\.grpo\.steps must .* at least 0, got -1"),
    ("rollout.sampling=1", r"rollout\.sampling=1: "),
    ("hydra.mode=MULTIRN", r"hydra\.mode: .*'MULTIRN'.*\[RUN, MULTIRUN\]"),
    ("policy.pretrained=${no.key}", r"policy\.pretrained: .*'no\.key' not found"),
    ("policy.pretrained=${oc.env:NO_SUCH_VARIABLE}/llama", r"policy\.pretrained: .*'NO_SUCH_VARIABLE' not found"),
    *((f"{key}=../x", rf"{key}='\.\./x' must be one plain name") for key in ("name", "arm", "baseline")),
    *((f"{key}=false", f"{key}=False: ") for key in ("name", "arm", "baseline")),
    *((f"policy.lora={value}", r"policy\.lora=.*adapter=lora, .*policy\.lora\.rank") for value in ("lora", "{rank:4}")),
    *((f"trainer.strategy=ddp_{way}", rf"trainer\.strategy=ddp_{way}: ") for way in ("spawn", "fork", "notebook")),
    *(
        (f"trainer.devices={devices} trainer.accelerator=gpu", r"trainer\.devices must .*CUDA_VISIBLE_DEVICES")
        for devices in ("0", "[0,1]", "auto")
    ),
    ("trainer.num_nodes=0", r"trainer\.num_nodes must .* at least 1, got 0"),
    # Contradictions of keys.
    ("stages=[grpo,warm_start]", r"stages must be .*got \['grpo', 'warm_start'\]"),
    ("reward=critic", r"the reward needs a critic: .*reward\.checkpoint=FOLDER"),
    ("reward=critic reward.checkpoint=nowhere", r"reward\.checkpoint=nowhere: .*critic\.json"),
    (f"{OUTCOMES} online=none", r"reward\.source\.checkpoint=fresh: .*online=outcomes"),
    (f"{OUTCOMES} online=refresh", r"reward\.source\.checkpoint=fresh: .*online=outcomes"),
    (f"{OUTCOMES} reward.warmup_steps=0", r"reward\.source\.checkpoint=fresh: .*reward\.warmup_steps"),
    ("module=grpo", r"objective\.kl_weight=0\.\d+ .*module=grpo_reference"),
    (f"{GRPO} objective.kl_weight=0.1", r"objective\.kl_weight=0\.1 .*module=grpo_reference"),
    (f"{GRPO} objective=grpo_full_kl", r"objective\.kl_weight=0\.\d+ .*module=grpo_reference"),
    ("module.shard_reference=true module.offload_reference=true", r"module\.shard_.* and module\.offload_reference: "),
    ("trainer.num_nodes=2", r"trainer\.num_nodes=2: .*torchrun"),
    ("trainer.devices=3", r"budget\.grpo\.problems=64 .*\(3\) .*\(1\)"),
    *((f"trainer.precision={word}", rf"trainer\.precision={word}: .*policy\.compute_dtype") for word in ("bf16", "64")),
    ("trainer.precision=16-mixed stages=[warm_start]", r"trainer\.precision=16-mixed: .*policy\.compute_dtype"),
    ("trainer._target_=lightning.pytorch.Trainer trainer.precision=bf16-mixed", r"trainer\.precision=bf16-mixed: "),
    # Sweeps.
    *((f"{CLIPO} seed={values}", "seed=.* 0 twice") for values in ("0,0", "0,1,0", "choice(0,0)")),
    (f"{CLIPO} reward.temperature=0.1,0.10", r"reward\.temperature=.* 0\.1 twice"),
    (f"{CLIPO} sweep=tau,group_size", "sweep=tau,group_size: "),  # Hydra would run each, without the swept values
    (f"{GRPO} sweep=tau", r"reward\.temperature: no such key"),
]
if not find_spec("optuna"):
    COMMAND_LINES += [
        ("hydra/sweeper=optuna", r"hydra/sweeper=optuna is not installed: .*optuna\]"),
        (f"{CLIPO} reward.temperature=interval(0.01,0.2)", r"reward\.temperature=interval.*hydra/sweeper=optuna"),
    ]
if find_spec("hydra_plugins.hydra_joblib_launcher"):
    COMMAND_LINES += [("seed=0,1 hydra/launcher=joblib hydra.launcher.n_jobs=0", r"hydra\.launcher\.n_jobs=0: ")]


def wrongly_named(named: Iterable[str], messages: Iterable[str | None]) -> dict[str, str | None]:
    """Returns pattern → message where the message does not begin with it, or has several lines."""
    pairs = zip(named, messages, strict=True)
    return {key: text for key, text in pairs if not re.match(key, text or "") or "\n" in (text or "")}


def test_wrong_command_line_is_named_by_its_key() -> None:
    lines, named = zip(*COMMAND_LINES, strict=True)
    assert wrongly_named(named, override_errors(map(overrides, lines))) == {}  # shared choices are composed once


FAST = "debug=fast stages=[warm_start,grpo,evaluate]"
VERIFIER, PERFECT = "reward=verifier", "reward=perfect_move"
CRITIC_0, TEXT = "reward=critic reward.weight=0.0", "critic=text"
INNER = "advantage@advantage.advantage"
GATED, GATED_PROCESS = "advantage=gated", f"advantage=gated {INNER}=process"
SUBSAMPLED = f"advantage=one_step_subsampled {INNER}=gated"
FUNCTION = (
    "_target_:contrastive_reasoning.rewards.FunctionReward,name:own,workers:1,limit_s:1.0,memory_mib:64,"
    "max_failures:1.0,function:{_target_:contrastive_reasoning.tasks.examples.mentions_answer,_partial_:true}"
)
UNVERIFIED = f"reward=oracle reward.weight=0.0 ~reward.outcome +reward.outcome={{{FUNCTION}}}"
UNVERIFIED_CALIBRATED = f"reward=oracle_calibrated ~reward.source.outcome +reward.source.outcome={{{FUNCTION}}}"
ADDS = r"reward\.weight=0 or"
STALE = r"online: online\.refresh_every=10 .* advantage\.window=10 "

PARTS = [
    # Arguments of a wrong type or value.
    (f"{CRITIC} reward.weight=abc", r"reward\.weight "),
    (f"{CLIPO} optimizer.schedule=flat", r"optimizer\.schedule "),
    (f"{CLIPO} task=countdown task.style=longprok", r"task\.style "),
    (f"{CLIPO} task=math task.real.judge=chioce", r"task\.real\.judge "),
    (f"{CLIPO} policy.trust_remote_code=perhaps", r"policy\.trust_remote_code "),
    (f"{CLIPO} policy.compute_dtype=int8", r"policy\.compute_dtype "),
    (f"{CLIPO} reward.level=grop", "reward: "),
    (f"{RELEASED} critic=text critic.style=longprok", r"critic\.style "),
    (f"{RELEASED} reward.goals=every", r"reward\.goals "),
    ("trainer.accelerator=gpuu", r"trainer\b"),
    ("reward=clipo reward.head._target_=no.such", r"reward\.head\._target_=no\.such: "),
    (f"{FAST} suite.settings.main.k_values=[9] budget.evaluate.samples=4", r"suite.*pass@9.*9 samples"),
    (f"{FAST} rollout.greedy.temperature=-1.0", "rollout.*temperature"),
    (f"{FAST} rollout.sampling.top_p=0.0", r"rollout.*top_p.*0\.0"),
    (f"{FAST} callbacks.grpo.step_credit.steps=0", r"callbacks\.grpo: .*step_credit\.steps .* got 0"),
    (f"{FAST} rollout.group_size=1", "rollout: .*group_size.* at least 2"),
    (f"{FAST} optimizer.betas=[0.9,2.0]", "optimizer: betas"),
    (f"{FAST} warm_start.train=true warm_start.module.optimizer.betas=[0.9,2.0]", r"warm_start.module\.optimizer: bet"),
    (f"{FAST} task.number_range=[20,20]", "task: .* holds"),
    (f"{FAST} warm_start=none policy.pretrained=null", r"policy\.pretrained=null with warm_start=none: "),
    (f"{FAST} warm_start=none warm_start.train=true", r"warm_start\.train=true with warm_start=none: "),
    # The user sets the steps of the budget, and the optimizer's steps are derived from them.
    (
        f"{REAL} debug=fast budget.critic.steps=20 budget.critic.warmup_steps=20",
        r".*got 20 \(.*\bbudget\.critic\.warmup_steps.*\bbudget\.critic\.steps\b",
    ),
    # Rewards that do not fit the advantage, the rollouts or the critic.
    (f"{REAL} {VERIFIER} advantage=process", "advantage: .*values steps .*VerifierReward"),
    (f"{REAL} reward=verifier_format advantage=process", "advantage: .*values steps .*WeightedSum"),
    (f"{REAL} {VERIFIER} {GATED_PROCESS}", "advantage: a trust gate needs a reward that values steps"),
    (f"{REAL} {VERIFIER} advantage=potential", "advantage: .*VerifierReward"),
    (f"{REAL} {PERFECT} {GATED}", "advantage: a potential .*PerfectMoveReward"),
    (f"{REAL} {PERFECT} advantage=vineppo", "advantage: .*advantage=vineppo .*PerfectMoveReward"),
    (f"{REAL} {CRITIC_0} {TEXT} advantage=survival", "advantage: .*survival .*CriticReward"),
    (f"{REAL} {CRITIC_0} {TEXT} {SUBSAMPLED}", "advantage: a potential .*CriticReward"),
    (f"{REAL} {UNVERIFIED} advantage=potential", "advantage: a potential .*verified"),
    (f"{REAL} {UNVERIFIED} {GATED_PROCESS}", "reward: .*TrustGate"),
    (f"{REAL} {UNVERIFIED_CALIBRATED} advantage=process", "reward: .*CalibratedReward"),
    (f"{REAL} reward=critic {GATED_PROCESS}", f"advantage: a trust gate .*{ADDS}"),
    (f"{REAL} reward=game_level {GATED_PROCESS}", f"advantage: a trust gate .*{ADDS}"),
    (f"{REAL} reward=critic {SUBSAMPLED}", f"advantage: a trust gate .*{ADDS}"),
    (f"{REAL} reward.weight=0.5", f"advantage: a potential of weight 1 .*{ADDS}"),
    (
        f"{REAL} reward=shuffled_calibrated reward@reward.source=random_potential reward.source.weight=0.0",
        "reward: source .*logits.*, got RandomPotentialReward",
    ),
    (f"{REAL} reward=critic_calibrated rollout=dynamic advantage=one_step", "rollout: .*Calibrated.*rollout=engine"),
    (
        "experiment=llama_critic reward=critic reward.weight=0 reward.checkpoint=fresh rollout=dynamic online=outcomes",
        "rollout: .*OutcomeCritic.*rollout=engine",
    ),
    (f"{REAL} reward=monte_carlo", "reward: MonteCarloReward .*rollout=vineppo"),
    (f"{RELEASED} critic=joint", r"reward\.critic: JointCritic .*critic=text"),
    (f"{RELEASED} critic=numeric_v2", r"reward\.critic: NumericV2 .*critic=text"),
    # Critics that cannot be trained beside the policy.
    (f"{ONLINE} {VERIFIER}", "online: .*one critic .* 0: use reward=critic"),
    (f"{ONLINE} {TEXT}", "online: .*TextCritic .*critic=joint or critic=numeric_v2, or"),
    (f"{ONLINE} critic=joint_ensemble", "online: .*EnsembleCritic .*critic=joint or"),
    (f"{ONLINE} online.updates.steps=0", r"online: online\.updates\.steps .* got 0"),
    (f"{ONLINE} online.refresh_every=0", r"online: online\.refresh_every .* got 0"),
    (f"{ONLINE} reward=critic_calibrated {GATED} {INNER}=one_step", f"{STALE}.*smaller window"),
    (f"{ONLINE} reward=critic_calibrated {SUBSAMPLED} {INNER}.advantage=one_step", f"{STALE}.*smaller window"),
    *((f"{OUTCOMES} {wrong}", "online") for wrong in ("critic=joint_ensemble", "online.buffer_batches=0")),
]


def check_as_a_run(config: DictConfig) -> None:
    check_arguments(config)
    device_of(config)
    check_parts(config)


@pytest.mark.parametrize(("line", "named"), PARTS, ids=[line[:80] for line, _ in PARTS])
def test_wrong_part_is_named_by_its_key_before_the_first_stage(line: str, named: str) -> None:
    with pytest.raises(AssemblyError) as error:
        check_as_a_run(composed(*overrides(line)))
    assert wrongly_named([named], [str(error.value)]) == {}
