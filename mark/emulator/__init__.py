"""The emulated AWS: boto3 is answered on this machine, and every instance is a real process."""
