"""Fashion-MNIST (Xiao et al. 2017, arXiv 1708.07747): 28x28 grey pictures of clothes in IDX files."""

from regard.lab.data.fashion_mnist import count_fashion_mnist
from regard.lab.data.sources.source import Package, Source

SOURCE = Source(
    name="fashion_mnist",
    about="70,000 grey pictures of clothes",
    licence="E",
    terms="MIT",
    packages=(
        Package(
            channel="debian",
            name="dataset-fashion-mnist",
            version="0.0~git20200523.55506a9-1",
            file="dataset-fashion-mnist_0.0~git20200523.55506a9-1_all.deb",
            sha256="39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
            bytes=30900652,
        ),
    ),
    counts={
        "train": 60000,
        "test": 10000,
        "classes": 10,
        "pixels": 784,
        "fewest of a class": 6000,
    },
    count=count_fashion_mnist,
)
