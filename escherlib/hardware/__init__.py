"""What machine is this: detection, profiles, host facts, telemetry, environment capture.

Imports stay in the modules.
"""
