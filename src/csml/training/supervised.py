"""Training with labels: the supervised baseline, fine-tuning of a backbone, and training on mined labels."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from csml.config.schema import ClassifierConfig
from csml.data.images import Images
from csml.data.loading import CropBatch
from csml.evaluation.accuracy import accuracy, confusion
from csml.evaluation.features import extract_features
from csml.models.classifier import Classifier
from csml.models.sync_batchnorm import synchronised
from csml.training.build import peak_learning_rate
from csml.training.crops import CropLoop
from csml.training.device import memory_format
from csml.training.run_directory import RunDirectory
from csml.views.augment import augment, draw_params
from csml.views.recipe import CropSpec
from csml.weights import save_backbone, save_classifier

_CROP_SCALE = (0.08, 1.0)


class SupervisedTraining(CropLoop):
    """One run of `csml supervised`, `finetune`, or of a round of `mine`.

    Args:
        command: of csml, which continues the run.
        config: checked settings.
        classifier: the network to start from.
        train: labelled images.
        val: labelled images of the same classes, tested after every epoch; None: nothing is tested.
        run: where everything is written.
        head_lr: peak learning rate of the linear layer, if it differs from that of the backbone.
    """

    def __init__(
        self,
        command: str,
        config: ClassifierConfig,
        classifier: Classifier,
        train: Images,
        val: Images | None,
        run: RunDirectory,
        head_lr: float | None = None,
    ) -> None:
        super().__init__(command, config, train, run)
        self.config, self.val, self.classifier = config, val, classifier
        synchronised(classifier, self.world, self.device)
        if config.hardware.compile:
            classifier.compile()
        lr = peak_learning_rate(config.optimizer, config.batch_size)
        parts = [(classifier.backbone.parameters(), lr), (classifier.fc.parameters(), head_lr or lr)]
        self.classify = self.set_up(classifier, parts, config.optimizer)
        self.labels = torch.from_numpy(train.labels)
        self.best = 0.0
        """highest top-1 of a test so far"""

    def crops(self) -> list[CropSpec]:
        settings = self.config.augmentation
        scale = settings.crop_scale or _CROP_SCALE
        return [CropSpec("view", 0, self.config.images.size, scale, settings.crop_ratio)]

    def train_step(self, batch: CropBatch, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        settings, crops = self.config.augmentation, batch.crops["view"].to(self.device, non_blocking=True)
        images = augment(crops, draw_params(len(crops), settings, generator, batch.part), settings.blur_sigma[1])
        labels = self.labels[batch.anchors].to(self.device, non_blocking=True)  # (B,)
        scores = self.classify(images.contiguous(memory_format=memory_format(self.config.hardware)))  # (B, classes)
        loss = F.cross_entropy(scores.float(), labels)
        right = (scores.argmax(1) == labels).float().mean()
        return loss, {"loss": loss.detach(), "accuracy": right}

    def close_epoch(self, record: dict[str, Any]) -> str:
        line = (
            f"epoch {record['epoch']:>{len(str(self.config.epochs))}}/{self.config.epochs}  loss {record['loss']:.3f}  "
            f"accuracy {record['accuracy']:.1%}  {record['images_per_second']:,.0f} images/s"
        )
        if self.val is not None:
            tested = self.test()
            record |= {"top1": tested["top1"], "top5": tested["top5"]}
            line += f"  test top-1 {tested['top1']:.1%}"
            if tested["top1"] > self.best:
                self.best = tested["top1"]
                if self.world.first:
                    self._save("best.safetensors")
        return line

    def save_weights(self) -> None:
        save_backbone(self.run.backbone, self.classifier.backbone, self.config.model, self.config.images)
        self._save("classifier.safetensors")

    def _save(self, name: str) -> None:
        classes = self.images.classes
        save_classifier(self.run.root / name, self.classifier, self.config.model, self.config.images, classes)

    @torch.no_grad()
    def test(self) -> dict[str, Any]:
        """Accuracy and confusions on centre crops of the test images."""
        assert self.val is not None
        features = extract_features(self.classifier.backbone, self.val, self.config.images, self.fabric)
        scores = self.classifier.fc(features.by_stage[4][features.good].to(self.device)).cpu()  # (Q, classes)
        labels, classes = features.labels[features.good], self.images.classes
        return {**accuracy(scores, labels, classes), "confusion": confusion(scores, labels, len(classes))}

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "best": self.best}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.best = state["best"]
