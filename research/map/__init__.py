"""Where does sharpness-aware training help, and what does it cost: a map over settings that overfit more or less."""
