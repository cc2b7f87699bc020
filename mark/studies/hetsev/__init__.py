"""Studies of HetSev (Electronics 2023): models that share GPUs of two types, beside Kubernetes."""
