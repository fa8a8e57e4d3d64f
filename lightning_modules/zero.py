"""DeepSpeed's ZeRO as a Lightning strategy, on GPUs and, for tests on any machine, on CPU processes.

stage 1    each rank keeps the optimizer's state of its share of the parameters
stage 2    and their gradients
stage 3    and the parameters themselves
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.fabric.utilities.seed import reset_seed
from lightning.pytorch.accelerators import CUDAAccelerator
from lightning.pytorch.plugins.precision import DeepSpeedPrecision
from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy
from torch import Tensor, nn

from contrastive_reasoning.distributed import gather
from contrastive_reasoning.policies.sharding import expected_bytes
from contrastive_reasoning.progress import steps_done

MEGABYTE = 1e6


class KeptDtypes(DeepSpeedPrecision):
    """Keeps the loaded dtype of weights under ``32-true``, as training without ZeRO does.

    The parent converts them to fp32, which doubles the memory of a bfloat16 model that is frozen below its adapters.
    """

    def convert_module(self, module: nn.Module) -> nn.Module:
        return module if self.precision == "32-true" else super().convert_module(module)


class ZeroStrategy(DeepSpeedStrategy):
    """ZeRO for modules that run several micro-batches and call backward themselves, or leave it to Lightning.

    The gradient is clipped to the module's ``gradient_clip``. On the CPU, ranks communicate over gloo.

    Args:
        stage: 1, 2 or 3.
        offload_optimizer: keep the optimizer's state in host memory, and step there.
        offload_parameters: keep the parameters there too; stage 3 only.
        bucket_elements: numbers exchanged at once; fewer take less memory.
        whole_elements: parameters of at most this many numbers stay whole at stage 3: fetching them would cost more.

    Raises:
        ValueError: for another stage, offloaded parameters below stage 3, or a number of elements that is too small.
    """

    def __init__(
        self,
        *,
        stage: int,
        offload_optimizer: bool,
        offload_parameters: bool,
        bucket_elements: int,
        whole_elements: int,
    ) -> None:
        if stage not in (1, 2, 3):
            raise ValueError(f"trainer.strategy.stage must be 1, 2 or 3, got {stage}")
        if offload_parameters and stage < 3:
            raise ValueError(f"trainer.strategy.offload_parameters needs stage 3, got stage {stage}")
        for name, value, least in (("bucket_elements", bucket_elements, 1), ("whole_elements", whole_elements, 0)):
            if value < least:
                raise ValueError(f"trainer.strategy.{name} must be at least {least}, got {value}")
        if not torch.cuda.is_available():
            os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read when deepspeed is imported, which is later
        super().__init__(
            stage=stage,
            offload_optimizer=offload_optimizer,
            offload_parameters=offload_parameters,
            allgather_bucket_size=bucket_elements,
            reduce_bucket_size=bucket_elements,
            overlap_comm=False,  # incompatible with micro-batches made by the module
            zero_allow_untested_optimizer=True,
            logging_batch_size_per_gpu=1,
        )
        self.stage = stage
        self.whole_elements = whole_elements
        assert isinstance(self.config, dict)
        # backward only accumulates and the optimizer's step is the boundary: the module chooses the number of
        # micro-batches
        self.config["managed_gradient_accumulation"] = False
        self.config["zero_force_ds_cpu_optimizer"] = False  # torch's AdamW is used wherever the state is
        self.config["zero_optimization"]["stage3_param_persistence_threshold"] = whole_elements

    @property
    def root_device(self) -> torch.device:
        return super().root_device if self._on_gpu else torch.device("cpu", 0)  # deepspeed needs an index

    @property
    def _on_gpu(self) -> bool:
        return isinstance(self.accelerator, CUDAAccelerator)

    def setup_environment(self) -> None:
        if self._on_gpu:
            super().setup_environment()
        else:
            DDPStrategy.setup_environment(self)  # the parent accepts GPUs only

    def setup_distributed(self) -> None:
        if self._on_gpu:
            super().setup_distributed()
            return
        reset_seed()
        self.set_world_ranks()
        from deepspeed import ops  # slow to import, and needed only for sharding

        # gloo alone: deepspeed would first compile its shared-memory communication, which needs a compiler
        compatible: dict[str, bool] = ops.__compatible_ops__
        compatible["deepspeed_shm_comm"] = False
        self._init_deepspeed_distributed()

    def _get_process_group_backend(self) -> str:
        return super()._get_process_group_backend() if self._on_gpu else "gloo"

    def setup(self, trainer: Trainer) -> None:
        if isinstance(self.precision_plugin, DeepSpeedPrecision):
            precision: Any = self.precision_plugin.precision
            self.precision_plugin = KeptDtypes(precision)
        super().setup(trainer)

    def init_deepspeed(self) -> None:
        assert isinstance(self.config, dict)
        clip = getattr(self.lightning_module, "gradient_clip", None)
        self.config["gradient_clipping"] = clip or 0.0  # 0: no clipping
        super().init_deepspeed()
        from deepspeed.runtime.checkpoint_engine import TorchCheckpointEngine  # deepspeed takes seconds to import

        self.deepspeed_engine.checkpoint_engine = TorchCheckpointEngine()
        self.deepspeed_engine.checkpoint_engine.load = load_weights_only
        sharding: Any = self.deepspeed_engine.optimizer
        # without this, stages 1 and 2 with bfloat16 weights would step on gradients that are not finite
        if hasattr(sharding, "check_grad_overflow"):
            sharding.check_grad_overflow = True

    def teardown(self) -> None:
        """Destroys the engine: its hooks would keep the module and the optimizer's state until the process ends.

        The parent moves what stage 3 keeps whole to the CPU, but not the shards. Both must be on one device to write a
        policy, so the module returns to the GPU.
        """
        super().teardown()
        engine: Any = self.model
        if hasattr(engine, "destroy"):  # absent if setup failed
            engine.destroy()
            from deepspeed.runtime.zero import parameter_offload

            # stage 3 never removes the module from its list of modules in a forward pass
            under_way: list[nn.Module] = parameter_offload.FWD_MODULE_STACK
            under_way[:] = [one for one in under_way if one is not engine.module]
        if self.stage == 3 and self._on_gpu and self.lightning_module is not None:
            self.lightning_module.to(self.root_device)

    def validation_step(self, *args: Any, **kwargs: Any) -> Any:
        """Bypasses the engine, which would fetch what a training step reads; modules gather what they need."""
        assert self.lightning_module is not None
        return self.lightning_module.validation_step(*args, **kwargs)

    def begin_microbatch(self) -> None:
        """Announces another backward after a finished one; without this call ZeRO loses gradients without an error.

        The engine's own forward does it, but runs only once per training step.
        """
        sharding: Any = self.deepspeed_engine.optimizer
        sharding.clear_backward_seen_flag()

    def bytes_held(self) -> dict[str, int]:
        """Bytes of gradients and of the optimizer's state on this rank.

        Valid after a backward and before the optimizer's step; the state exists from the second step on. Master weights
        in fp32 count towards the optimizer if they are not the parameters themselves.
        """
        engine: Any = self.deepspeed_engine
        inner = engine.optimizer
        if self.stage == 3:
            gradients, masters = inner.grad_partitions_flat_buffer, inner.fp32_partitioned_groups_flat
        else:
            whole = [parameter.grad for parameter in engine.module.parameters()]
            gradients = whole if self.stage == 1 else inner.all_grad_tensors
            masters = inner.single_partition_of_fp32_groups
        weights = self._parameters()
        state = storages([masters, [list(state.values()) for state in inner.optimizer.state.values()]])
        return {
            "gradients": sum(storages(gradients).values()),
            "optimizer": sum(size for place, size in state.items() if place not in weights),
        }

    def parameter_bytes_held(self) -> int:
        """Bytes of parameters on this rank: its shards, and the parameters that are whole beside them.

        Valid between two steps. Within a step, fetched parameters are whole until their last use, and an ``lm_head`` of
        its own until the step ends.
        """
        return sum(self._parameters().values())

    def _parameters(self) -> dict[int, int]:
        """Memory address → bytes. If only a parameter's shard is kept, ``data`` is a stand-in of at most one number."""
        engine: Any = self.deepspeed_engine
        return storages([[getattr(one, "ds_tensor", None), one.data] for one in engine.module.parameters()])

    def gradient_norm(self) -> Tensor:
        """The gradient norm over all ranks, before clipping, from the last step."""
        norm = self.deepspeed_engine.get_global_grad_norm()
        return torch.as_tensor(float("nan") if norm is None else norm)


def load_weights_only(path: str, map_location: Any = None) -> Any:
    """Loads a shard's file with tensors, numbers and containers only; deepspeed's own engine unpickles anything.

    Raises:
        pickle.UnpicklingError: for a file that needs anything else.
    """
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler
    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.utils.tensor_fragment import fragment_address

    with torch.serialization.safe_globals([LossScaler, DynamicLossScaler, ZeroStageEnum, fragment_address]):
        return torch.load(path, map_location=map_location, weights_only=True)


def storages(tensors: Any) -> dict[int, int]:
    """Memory address → bytes of all tensors in nested containers; shared memory counts once."""
    found: dict[int, int] = {}
    waiting = [tensors]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Tensor):
            found[one.untyped_storage().data_ptr()] = one.untyped_storage().nbytes()
        elif isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list | tuple):
            waiting += one
    return found


def zero_of(module: LightningModule) -> ZeroStrategy | None:
    """The module's strategy, if it is ``ZeroStrategy``."""
    strategy = module.trainer.strategy
    return strategy if isinstance(strategy, ZeroStrategy) else None


class ZeroSharding(Callback):
    """Logs ``train/sharding/<what>_megabytes`` and ``…_expected`` of the second optimizer step of a fit. Only watches.

    ``<what>`` is parameters, gradients, or optimizer (its state with master weights), on the rank that holds most.
    Parameters are counted when the batch has ended, including whole ones: during a step some are whole to be read.
    Under a strategy that does not shard it logs nothing.

    Args:
        tolerance: the relative excess over the expected share that a rank may hold, for padding.

    Raises:
        RuntimeError: during training, if a rank holds more, or deepspeed runs another stage.
        ValueError: for a negative tolerance.
    """

    def __init__(self, *, tolerance: float) -> None:
        if tolerance < 0:
            raise ValueError(f"callbacks.zero_sharding.tolerance must not be negative, got {tolerance}")
        self.tolerance = tolerance
        self._steps = 0
        self._due = False
        """Whether parameters are to be counted at the end of this batch."""

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._steps, self._due = 0, False

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        """Compares at the second step, when the optimizer has its state and the gradients exist."""
        self._steps += 1
        strategy = zero_of(pl_module)
        if strategy is None or self._steps != 2:
            return
        running = strategy.deepspeed_engine.zero_optimization_stage()
        if running != strategy.stage:
            raise RuntimeError(f"trainer.strategy.stage is {strategy.stage}, but deepspeed runs stage {running}")
        self._compare(trainer, pl_module, strategy, strategy.bytes_held())
        self._due = True

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Counts the parameters once, when none is being read."""
        strategy = zero_of(pl_module)
        if strategy is not None and self._due:
            self._compare(trainer, pl_module, strategy, {"parameters": strategy.parameter_bytes_held()})
        self._due = False

    def _compare(
        self, trainer: Trainer, pl_module: LightningModule, strategy: ZeroStrategy, all_held: Mapping[str, int]
    ) -> None:
        stage, ranks = strategy.stage, trainer.world_size
        expected = expected_bytes(pl_module, stage=stage, ranks=ranks, whole_elements=strategy.whole_elements)
        for what, held in all_held.items():
            most = max(gather(held))
            if most > expected[what] * (1 + self.tolerance):
                raise RuntimeError(
                    f"ZeRO-{stage} should leave {expected[what]:,} bytes of {what} on each of {ranks} ranks, "
                    f"one holds {most:,}"
                )
            values = {f"{what}_megabytes": most / MEGABYTE, f"{what}_expected": expected[what] / MEGABYTE}
            for logger in trainer.loggers:
                named = {f"train/sharding/{name}": value for name, value in values.items()}
                logger.log_metrics(named, step=steps_done(trainer, pl_module))
