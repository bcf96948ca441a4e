"""What holds for all tests."""

import hypothesis
import torch

# Tests run side by side: more threads than cores make all of them slower by a factor.
torch.set_num_threads(1)
# A busy machine is no failure, and the same examples every time are no surprise.
hypothesis.settings.register_profile("vsam", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("vsam")
