"""Add-ons: one file a feature, loaded by the option that asks for it and known to nothing below."""
