"""The tune room: the model's best candidates, measured, remembered, and chosen from."""
