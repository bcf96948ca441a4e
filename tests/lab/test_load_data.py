import torch

from vsam.lab.recipes.load import load_recipe
from vsam.lab.train import load_data

CPU = torch.device("cpu")


def test_held_out_images_have_right_labels_and_leave_the_training_images_as_they_are():
    changes = ["data.train=200", "data.test=100", "data.noise=0.5"]
    usual, chosen = (
        load_data(load_recipe("fashion-mini", changes=[*changes, f"data.held_out={value}"]), None, CPU)
        for value in ("false", "true")
    )
    clean = load_data(load_recipe("fashion-mini", changes=[*changes[:2], "data.held_out=true"]), None, CPU)
    assert torch.equal(usual.train_images, chosen.train_images)
    assert torch.equal(usual.train_labels, chosen.train_labels)
    assert (usual.split, chosen.split) == ("test", "validation")
    assert torch.equal(chosen.test_labels, clean.test_labels)
    assert not torch.equal(chosen.test_images, usual.test_images)
