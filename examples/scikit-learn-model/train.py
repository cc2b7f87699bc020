from pathlib import Path

import joblib
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier

flowers, kinds = load_iris(return_X_y=True)
forest = RandomForestClassifier(n_estimators=20, random_state=0).fit(flowers, kinds)
joblib.dump(forest, Path(__file__).with_name("forest.joblib"))
