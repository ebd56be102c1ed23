"""Where UnQover's lists and Refine-LM's parts of them are published, with their checksums.

Files are called as at their home, with `.txt` after it.
"""

from collections.abc import Mapping

from logitbank.engine.prompts.datasets import Dataset


def _digests(folders: Mapping[str, str]) -> dict[str, str]:
    """File name to SHA-256, from lines with the digest and the name of each file of a folder."""
    return {
        f"{folder}/{name}": digest
        for folder, lines in folders.items()
        for digest, name in map(str.split, lines.strip().split("\n"))
    }


DATASET = Dataset(
    name="unqover/unqover-original",
    base_url=(
        "https://raw.githubusercontent.com/allenai/unqover/"
        "3e47969b78acc0de436f9d17c9ab1b2f6a108ff0/word_lists"
    ),
    files=_digests(
        {
            "activities": """
a7b92310efeec39dd11583d0df137f0f8907938c89cb7df8f4ac6f0af8d8043f biased_country.txt
c7152d144ccf983316f4f7a47d8e3457f6c2670d35efce16bd0fba5fb5013592 biased_ethnicity.txt
c7152d144ccf983316f4f7a47d8e3457f6c2670d35efce16bd0fba5fb5013592 biased_religion.txt
2922baf88fa18267c46776c36fb09d30a21112abe4e15b867973d8585773ea77 occupation_rev1.txt
""",
            "nouns/subjects": """
4806e08b279f099f56e1ba5859f71e4360c24260b7fd0b456aac1ac252d85281 country.txt
9a9d4d99f1739454d4861dbe70e4bc46f9b30425cada3bf0d951b57c5dbd4436 country_bert.txt
1918e48ade75b630521143054f084ca69b4ebaa090acde9ac701aea8e080806d country_roberta.txt
a2008f4362cde3d48d99ad000471fdd5aa8b3d05f1e4a114b321413b0dd89158 ethnicity.txt
ff5379801c2c9b3c20dccdc6d77e91e6f646fdb6d08e215fd9b77364578ab7ce ethnicity_bert.txt
ff5379801c2c9b3c20dccdc6d77e91e6f646fdb6d08e215fd9b77364578ab7ce ethnicity_roberta.txt
40aed064f32bb31b8675832b52fc9782c6064759b4d42d3e8b37c5271cf3cc88 female.txt
c069ba753e29bdedb69cc37a74e5c2a716fe1b4ab2551ef4ba63062f17f174d7 female_bert.txt
d61a78d03b6e644903f122da4eb5f5d2b330ed5b923bf993567a0be0102861f1 female_roberta.txt
c358a107602926bcd60e8e48baa75ca6acfbc6094c5b7fe42fc8a5680e366a47 male.txt
a8154d642e06a34851a89b9871c0d8be8142aaa0d2f2070d3d93e7ed00604727 male_bert.txt
137c94631ffe515eabc4cb382445c6356cfc8fc6b3a16a8fa5039737c1f465f7 male_roberta.txt
6b22fa2e9fa1e212d75290f0063d822e23db28eaeae58d0e3f51b641f483f4eb religion.txt
6b22fa2e9fa1e212d75290f0063d822e23db28eaeae58d0e3f51b641f483f4eb religion_bert.txt
0c0589d5b7a3a1c28352f35ba8e99cca7d91d9fe3778fdb6b265c59b48acfa3f religion_roberta.txt
""",
            "slots": """
95c5260ee32c463846e26896ec476df69ecc67874a90743a36668430441fa287 country_noact.txt
73a3eaad4c8c13b2da3e411df6822cb4bbe98fb3d4f92f990add4c22f0e6d61f country_noact_lm.txt
8ee8da4f0fff82d31959a464adc6cf495c17d2dea81949e8daa027063f5f9e5d ethnicity_noact.txt
543abaedf193ec966ab42355e11ec0bded7b2341ad116552da62e61f88ed6ec0 ethnicity_noact_lm.txt
d575a912dde76fdacf4e083a3cbf42a0e64c7c79b8ce6f5a11db3fda657a46ea gender_noact.txt
63d3840805c700eedb7f37ab96e9bd3da304137e41f6df5d93a75415df13c992 gender_noact_lm.txt
2bb683ebab729554e11aca02de511b443ade6d186f70f61c52a151220df113fa religion_noact.txt
f32a75b7c77b5108f9f233b0f0b8f92041b159a79020ac9ab1f8cde8fd062d74 religion_noact_lm.txt
""",
        }
    ),
    suffix=".txt",
)
DATASET_OF_PARTS = Dataset(
    name="unqover/refine-lm",
    base_url=(
        "https://raw.githubusercontent.com/rameez-mrq/refine-lm-submission/"
        "e3c0bae505cf87d410d19b99cf631e0d03b53600/word_lists"
    ),
    files=_digests(
        {
            "activities": """
a8b2d1d4b0a2c100b5c14f62b2c2a73ce1a87ddf2caa6456782996ef73ebd785 biased_country-TEST.txt
5268aec5b9e134b1ca8333fb407e6c070f6fbb23e9842840b994da426bb0bf1a biased_ethnicity-TEST.txt
5268aec5b9e134b1ca8333fb407e6c070f6fbb23e9842840b994da426bb0bf1a biased_religion.txt
""",
            "nouns/subjects": """
5fc93a2a7e8c45008d10141d2675d1e4bb2733964dedfc7e9319fe8e999305a0 female_bert_test.txt
967d17f8aa401f0f602cbf2e8b33d8a09a00be684276da6473580154cc896a3f female_bert_train.txt
81e94648c5651ae761717e64c90c7e0a9fdd34a34cef9d3311142a6139bfb2c4 female_roberta_test.txt
6aedab94046a683941b9c7c244916daab28b2de8b3410d8de774069e5361d325 male_bert_test.txt
484699c838f1b9b41572b2a60701acf21d2dad8d67e9c38ad8c604e9bf9278e0 male_bert_train.txt
f42c93095ba57e6e5bf84ba8f6c43d4453c3b3fa624108aa2e3b3a927f3ae134 male_roberta_test.txt
""",
            "slots": """
5aad9919acc6018ac373d48dbcbb160721052cdb8bc8cfa161b21c2c374d3c23 country_noact_lm-TEST.txt
62b26028c524bd4849f33ded22f6607409d5909a66e4e146eada089fdc84a51d ethnicity_noact_lm-TEST.txt
f36d416b4dd60d28415ea2b5b43c677585b15695db1bbf3ed96ae8ee17a781c6 religion_noact_lm-TEST.txt
""",
        }
    ),
    suffix=".txt",
)
