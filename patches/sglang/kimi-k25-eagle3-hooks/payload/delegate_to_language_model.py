# sglforge: what EAGLE workers ask of a target model; the language model inside answers.
def get_embed_and_head(self):
    return self.language_model.get_embed_and_head()

def set_embed_and_head(self, embed, head):
    self.language_model.set_embed_and_head(embed, head)

def set_eagle3_layers_to_capture(self, layer_ids=None):
    self.language_model.set_eagle3_layers_to_capture(layer_ids)
