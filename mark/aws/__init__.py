"""AWS: the only room with boto3. An endpoint URL in the settings is all that tells one AWS from another."""
