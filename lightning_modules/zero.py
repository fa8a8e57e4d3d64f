"""DeepSpeed's ZeRO as a Lightning strategy, on GPUs and, for tests on any machine, on CPU processes.

stage 1    each rank keeps the optimizer's state of its share of the parameters
stage 2    and their gradients
stage 3    and the parameters themselves
"""

from __future__ import annotations

import os
from typing import Any

import torch
from lightning import LightningModule, Trainer
from lightning.fabric.utilities.seed import reset_seed
from lightning.pytorch.accelerators import CUDAAccelerator
from lightning.pytorch.plugins.precision import DeepSpeedPrecision
from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy
from torch import Tensor, nn

from contrastive_reasoning.ranges import at_least


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
        ValueError: for another stage, also in a file that ``PL_DEEPSPEED_CONFIG_PATH`` names, offloaded parameters
            below stage 3, or a number of elements that is too small.
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
        at_least(1, **{"trainer.strategy.bucket_elements": bucket_elements})
        at_least(0, **{"trainer.strategy.whole_elements": whole_elements})
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
        if (running := self.config.get("zero_optimization", {}).get("stage")) != stage:
            raise ValueError(f"trainer.strategy.stage is {stage}, but {self.DEEPSPEED_ENV_VAR} gives stage {running}")
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


def zero_of(module: LightningModule) -> ZeroStrategy | None:
    """The module's strategy, if it is ``ZeroStrategy``."""
    strategy = module.trainer.strategy
    return strategy if isinstance(strategy, ZeroStrategy) else None
