"""What holds for all tests."""

import torch

# Tests run side by side: more threads than cores make all of them slower by a factor.
torch.set_num_threads(1)
