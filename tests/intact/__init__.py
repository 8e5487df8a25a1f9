"""What was captured whole is never told wrong: an independent reading of captures, and made segmentations."""
