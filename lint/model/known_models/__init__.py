"""What models and blocks of torch, torchvision, timm and transformers are made of."""
