"""Loading of policies: from the hub, a folder, the package's embedded policies, or fresh; with or without LoRA."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Literal

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors import SafetensorError
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
    GgufConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.modeling_layers import GradientCheckpointingLayer

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy, context_of
from contrastive_reasoning.policies.log_probs import liger_log_probs, require_liger, token_log_probs
from contrastive_reasoning.policies.probe import check_passes
from contrastive_reasoning.policies.prompting import NO_SYSTEM
from contrastive_reasoning.policies.seeded import seeded
from contrastive_reasoning.policies.shape import EMBEDDED, EMBEDDED_FOLDER
from contrastive_reasoning.policies.tiny import TinyArchitecture, tiny_model, train_tokenizer
from contrastive_reasoning.policies.varlen import FLASH, Kernel, check_heads, require_flash
from contrastive_reasoning.ranges import at_least, one_of

KERNELS: dict[str, Callable[..., torch.Tensor]] = {"torch": token_log_probs, "liger": liger_log_probs}
ATTENTION: dict[str, Kernel | None] = {"sdpa": None, "varlen": FLASH}
AUTO = "auto"
SHOWN = 3
"""Maximum number of weights that an error names."""
Dtype = Literal["float32", "bfloat16", "float16"]
DTYPES: dict[str, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, kw_only=True)
class LoRA:
    """Low-rank adapters, W + (alpha / rank)·B A, arXiv:2106.09685.

    Raises ValueError for a rank below 1 or an adapter on ``lm_head`` or ``embed_tokens``.
    """

    rank: int
    alpha: float
    dropout: float
    target_modules: Sequence[str] | str
    """Names of the linear layers, or ``all-linear``."""

    def __post_init__(self) -> None:
        at_least(1, **{"lora.rank": self.rank})
        for name in {"lm_head", "embed_tokens"} & set(self.named):
            raise ValueError(
                f"lora.target_modules must not name {name}: the vocabulary is projected by its own weights"
            )

    @property
    def named(self) -> list[str]:
        """The names in ``target_modules``."""
        return [self.target_modules] if isinstance(self.target_modules, str) else list(self.target_modules)

    def attach(self, model: PreTrainedModel, *, seed: int) -> PeftModel:
        """The model with frozen weights and trainable adapters, with their initial A drawn from ``seed``."""
        # PEFT reads any text other than this one as a regular expression
        targets = "all-linear" if self.target_modules == "all-linear" else self.named
        config = LoraConfig(
            r=self.rank,
            lora_alpha=self.alpha,  # pyright: ignore[reportArgumentType]
            lora_dropout=self.dropout,
            target_modules=targets,
            task_type="CAUSAL_LM",
        )
        with seeded(seed):
            return get_peft_model(model, config)  # pyright: ignore[reportReturnType]


def load_policy(
    *,
    pretrained: str | None,
    architecture: TinyArchitecture | None,
    weights_dtype: Dtype,
    compute_dtype: Dtype | Literal["auto"],
    lora: LoRA | None,
    chat_template: bool | None,
    trust_remote_code: bool,
    gradient_checkpointing: bool,
    compiled: bool,
    kernels: Literal["torch", "liger"],
    seed: int,
    corpus: Callable[[], Sequence[str]] | None = None,
    system: str = NO_SYSTEM,
    attention: Literal["sdpa", "varlen"] = "sdpa",
    fused: bool | Literal["auto"] = AUTO,
) -> CausalLMPolicy:
    """Builds a policy.

    Args:
        pretrained: hub name, local folder, ``embedded:NAME`` or None for a fresh model.
        architecture: of a fresh model; ignored if ``pretrained`` is given.
        weights_dtype: float32, bfloat16 or float16: the dtype in which weights are kept and trained.
        compute_dtype: the dtype of forward passes under autocast; auto: :func:`native_dtype` of a GPU if torch finds
            one, else of the processor. A run replaces it by that of its trainer's device.
        lora: adapters to train instead of the weights; None trains all weights.
        chat_template: render prompts by the tokenizer's chat template; None: if it has one.
        system: the system message of prompts that have none of their own: ``none``, ``default`` (the chat template's
            own) or its text.
        trust_remote_code: run code that comes with a checkpoint; leave it off.
        gradient_checkpointing: keep only each layer's input for the backward pass and compute the layer again there:
            less memory, a third more work, the same gradients. It does not affect generation and evaluation.
        compiled: run the decoder layers of scoring and update compiled: the first pass of a kind takes many seconds,
            and later ones are faster. It needs a C++ compiler.
        kernels: the implementation of log-probs: ``torch``, or ``liger`` on CUDA with the extra of that name.
        attention: of scoring and update passes: ``sdpa``, or ``varlen``: segments by FlashAttention on CUDA where each
            prompt's completions are neighbours.
        fused: compute the decoder layers of scoring and update by ``fused_layers``; auto: on a CPU, where it can.
        corpus: texts for a fresh tokenizer; needed only for a fresh model.

    Raises:
        ValueError: for an unknown dtype, kernel or embedded name; for a system message that the chat template does not
            show; if neither source is given; if this machine cannot compile or lacks what the kernels need; if layers
            shall be fused that cannot be; for files that hold anything but weights, or not all of them; and for a model
            whose log-probs or decode steps here differ from those of its own forward pass (see ``probe``).
        FileNotFoundError: for a path that holds no model.
    """
    one_of(KERNELS, **{"policy.kernels": kernels})
    if kernels == "liger":
        require_liger()
    one_of(ATTENTION, **{"policy.attention": attention})
    one_of(DTYPES, **{"policy.weights_dtype": weights_dtype})
    one_of((*DTYPES, AUTO), **{"policy.compute_dtype": compute_dtype})
    one_of((AUTO, "true", "false"), **{"policy.fused": str(fused).lower()})
    if compute_dtype == AUTO:
        compute_dtype = native_dtype("cuda" if torch.cuda.is_available() else "cpu")
    if attention == "varlen":
        require_flash(DTYPES[compute_dtype])
    dtype = DTYPES[weights_dtype]
    model: Any
    if pretrained is not None:
        path = resolve(pretrained)
        tokenizer = _tokenizer(path, trust_remote_code=trust_remote_code)
        named = f"policy.pretrained={path}"
        with only_weights(named):
            settings: dict[str, Any] = {"dtype": dtype, "trust_remote_code": trust_remote_code, **REPORTING}
            model, info = _text_model(path, named, settings)
        require_weights(info, named)
    elif architecture is not None and corpus is not None:
        tokenizer = train_tokenizer(corpus(), vocab_size=architecture.vocab_size, kind=architecture.kind)
        model = tiny_model(architecture, tokenizer, seed=seed)
        model, named = model.to(dtype), "policy.architecture"
    else:
        raise ValueError("policy.pretrained is null, so policy.architecture and a corpus for the tokenizer are needed")
    if gradient_checkpointing:
        checkpoint_layers(model)
    policy = CausalLMPolicy(
        model=model if lora is None else lora.attach(model, seed=seed),
        tokenizer=tokenizer,
        compute_dtype=DTYPES[compute_dtype],
        chat_template=chat_template,
        system=system,
        compiled=compiled,
        score=KERNELS[kernels],
        attention=ATTENTION[attention],
        fused=fused,
    )
    check_passes(policy, named)  # here, because later its weights may be sharded
    if attention == "varlen":
        check_heads(model.config, plans=policy.plans_attention and not policy.unpadded)
    return policy


def _text_model(path: str, named: str, settings: Mapping[str, Any]) -> tuple[PreTrainedModel, Mapping[str, Any]]:
    """A causal language model and what loading reported. Of a model for text and images it is the text model alone.

    Raises ValueError, which begins with ``named``, if transformers has no text model of that family.
    """
    config = AutoConfig.from_pretrained(path, trust_remote_code=settings["trust_remote_code"])
    loaded: Any
    if type(config) not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
        loaded = AutoModelForCausalLM.from_pretrained(path, **settings)
        return loaded
    if type(config.get_text_config()) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ValueError(
            f"{named}: a model for text and images ({config.model_type}), of which transformers has no text model; "
            "choose a policy of another family"
        )
    loaded = AutoModelForImageTextToText.from_pretrained(path, **settings)
    whole, info = loaded
    decoder, head = whole.get_decoder(), whole.get_output_embeddings()
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(decoder.config)
    setattr(model, model.base_model_prefix, decoder)
    model.set_output_embeddings(head)
    model.config, model.generation_config = decoder.config, whole.generation_config
    # The whole model decides whether they are tied; a tied head is not saved.
    model.config.tie_word_embeddings = head.weight is decoder.get_input_embeddings().weight
    return model, info


def checkpoint_layers(model: PreTrainedModel) -> None:
    """Enables gradient checkpointing in every layer that supports it.

    ``transformers`` checkpoints a layer only in training mode. A pretrained model is not in training mode, and
    Lightning does not change that. The flag is set on the layers alone, so that dropout within them stays inactive.
    """
    model.gradient_checkpointing_enable({"use_reentrant": False})  # reentrant: no gradient under frozen embeddings
    for layer in model.modules():
        if isinstance(layer, GradientCheckpointingLayer):
            layer.training = True


def tokenizer_and_context(pretrained: str, *, trust_remote_code: bool) -> tuple[PreTrainedTokenizerBase, int]:
    """A pretrained policy's tokenizer and its context in tokens, without its weights."""
    config = read_model_config(pretrained, trust_remote_code=trust_remote_code)
    return _tokenizer(resolve(pretrained), trust_remote_code=trust_remote_code), context_of(config)


def read_model_config(pretrained: str, *, trust_remote_code: bool) -> PretrainedConfig:
    """A pretrained policy's sizes, without its weights; of a model for text and images, those of its text model."""
    config = AutoConfig.from_pretrained(resolve(pretrained), trust_remote_code=trust_remote_code)
    return config.get_text_config() if type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING else config


@contextmanager
def only_weights(named: str) -> Iterator[None]:
    """Raises ValueError inside if a weights file is damaged or holds more than weights.

    Nothing in such a file is executed: pickles are read with ``weights_only``, the default of ``transformers``. The
    message begins with ``named``.
    """
    try:
        yield
    except (UnpicklingError, SafetensorError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{named}: the file of weights is damaged or holds more than weights ({reason})") from error


REPORTING: Mapping[str, Any] = {"output_loading_info": True, "ignore_mismatched_sizes": True}
"""Arguments of ``from_pretrained`` with which it also returns what ``require_weights`` reads."""


def require_weights(info: Mapping[str, Any], named: str, *, unused: str | None = None) -> None:
    """Checks that every weight of a model was in its files, in its shape: transformers draws the others at random.

    ``unused`` are the first letters of weights that nothing reads. Raises ValueError, which begins with ``named``.
    """
    missing = sorted(key for key in info["missing_keys"] if unused is None or not key.startswith(unused))
    reshaped = sorted(str(mismatch[0]) for mismatch in info["mismatched_keys"])
    for keys, flaw in ((missing, "are missing"), (reshaped, "have another shape than config.json says")):
        if keys:
            more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
            raise ValueError(
                f"{named}: weights {flaw}, and would be drawn at random: {', '.join(keys[:SHOWN])}{more}; give a whole "
                "causal language model, not a reward model, an encoder or a part"
            )


def convert_gguf(file: Path, folder: Path, *, dtype: str) -> None:
    """Converts a GGUF file to a ``transformers`` folder with its tokenizer and its weights, dequantised to ``dtype``.

    The weights keep the values that quantisation left. Needs the package ``gguf``.

    Raises ValueError if the file lacks weights of the model.
    """
    source = {"gguf_file": file.name}
    AutoTokenizer.from_pretrained(file.parent, **source).save_pretrained(folder)
    settings: dict[str, Any] = {"quantization_config": GgufConfig(dequantize=True), "dtype": getattr(torch, dtype)}
    loaded: Any = AutoModelForCausalLM.from_pretrained(file.parent, **source, **settings, **REPORTING)
    model, info = loaded
    require_weights(info, str(file))
    model.config.quantization_config = None  # otherwise a loaded copy would be treated as quantised
    model.save_pretrained(folder)


def _tokenizer(path: str, *, trust_remote_code: bool) -> PreTrainedTokenizerBase:
    """The tokenizer of a model. Without its files, transformers may return one with an empty vocabulary."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=trust_remote_code)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"policy.pretrained={path}: a file of the tokenizer is not JSON ({error})") from error
    if not tokenizer("1+1=2", add_special_tokens=False)["input_ids"]:
        raise ValueError(f"policy.pretrained={path}: the model has no tokenizer (tokenizer.json is missing)")
    if tokenizer.eos_token_id is None:
        raise ValueError(f"policy.pretrained={path}: its tokenizer names no eos_token, which ends a completion")
    return tokenizer


def resolve(pretrained: str) -> str:
    """A hub name or an existing folder for ``from_pretrained``; ``embedded:NAME`` becomes the package's own folder.

    A run folder or stage folder stands for the policy that it trained.

    Raises FileNotFoundError for a folder without a model, or with an adapter alone.
    """
    if pretrained.startswith(EMBEDDED):
        name = pretrained.removeprefix(EMBEDDED)
        if name not in embedded_names():
            there = ", ".join(embedded_names()) or "none"
            raise ValueError(f"policy.pretrained: no embedded policy {name!r}; there are {there}")
        return str(EMBEDDED_FOLDER / name)
    looks_local = pretrained.startswith((".", "/", "~")) or pretrained.count("/") > 1
    folder = trained_policy(Path(pretrained).expanduser())
    if (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file():
        raise FileNotFoundError(
            f"policy.pretrained={pretrained}: an adapter without its base model (adapter_config.json, no config.json); "
            "merge it into its base (peft's merge_and_unload, then save_pretrained) and name that folder"
        )
    if (looks_local or folder.is_dir()) and not (folder / "config.json").is_file():
        raise FileNotFoundError(f"policy.pretrained={pretrained}: no model there (config.json is missing)")
    return str(folder) if folder.is_dir() else pretrained


def trained_policy(folder: Path) -> Path:
    """The policy that a stage, or the last stage of a run, trained in its ``folder``; any other folder itself."""
    return next((trained for trained in _trained_policies(folder) if (trained / "config.json").is_file()), folder)


def _trained_policies(folder: Path) -> Iterator[Path]:
    """Candidates for :func:`trained_policy`."""
    yield folder / "policy"
    if (folder / "stages.json").is_file():
        stages = json.loads((folder / "stages.json").read_text(encoding="utf-8"))
        for stage in reversed(stages.values()):
            yield Path(stage["folder"]) / "policy"
            yield folder.parents[1].parent / "stages" / Path(*Path(stage["folder"]).parts[-2:]) / "policy"  # moved


def embedded_names() -> list[str]:
    """The names of the policies that come with the package."""
    return sorted(config.parent.name for config in EMBEDDED_FOLDER.glob("*/config.json"))


BF16_CAPABILITY = 8
"""Compute capability of the first GPUs that multiply bfloat16 natively (A100); a V100 has 7.0, a T4 7.5."""


def native_dtype(device: str) -> Dtype:
    """The value of ``compute_dtype: auto`` on a type of device: bfloat16 if it is multiplied natively, else float32.

    A processor without AVX-512 has no fast bfloat16: matrix products take about 20 times as long as in float32. It is
    never float16, in which small gradients are lost.

    Args:
        device: ``cpu`` or ``cuda``. If this machine has several GPUs, all of them must multiply bfloat16; if it has
            none, the GPU of another one is assumed to.
    """
    if device == "cuda":
        found = range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
        native = all(torch.cuda.get_device_capability(index)[0] >= BF16_CAPABILITY for index in found)
    else:
        native = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return "bfloat16" if native else "float32"
